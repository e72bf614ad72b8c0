_current_level = -1
