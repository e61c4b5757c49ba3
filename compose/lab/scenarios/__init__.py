"""The lab's scenarios: a module each, or one for those that differ in a value; `registry` has them all."""
