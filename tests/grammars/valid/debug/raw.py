r"""The pattern \d+ matched nothing, because the text has no digits. \w would."""
