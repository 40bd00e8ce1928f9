("""The file exists,"""
 """ and it has three lines.""")
