"""The laptop cluster's stand-in for what upstream's initializer images hold."""
