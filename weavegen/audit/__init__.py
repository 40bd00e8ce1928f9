"""The audit reads the corpus and proves that nothing was lost or doubled. See docs/audit.md.

Each check has a name. What SQL can express is a file in checks/, one query for all traces. The rest (rendering,
parsing and compiling blocks, labels, rewards) is Python in texts.py, which reads trace by trace through a
server-side cursor, so that memory grows with the longest trace's number of blocks and not with the corpus. host.py
compares processes and files of this host with the database.

All of it sees one snapshot. An advance of a trace is one transaction, so the audit never sees half of one while
workers run.
"""
