["""The board has two marks."""]
