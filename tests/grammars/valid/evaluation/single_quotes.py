def eval_x(self):
    '''One line of doc, with a "quote" and a \\ backslash.'''
    return len('it\'s') == 4 != 5
self.add_evaluation('Does "it\'s" have four letters?', eval_x)
