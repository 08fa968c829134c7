"""The files that `harness new` writes, as text: `my_name`, `my-name` and `MyName` stand for the name."""
