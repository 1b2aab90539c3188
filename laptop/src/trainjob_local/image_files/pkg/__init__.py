"""The laptop cluster's replacement for the program in the Trainer's initializer images."""
