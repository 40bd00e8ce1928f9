'''He said: """Well""", and then "no". It's \'fine\'.'''
