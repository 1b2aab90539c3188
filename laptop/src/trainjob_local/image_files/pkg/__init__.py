"""The laptop cluster's replacement for the program in upstream's initializer images."""
