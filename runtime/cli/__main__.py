"""`python -m sapwood.runtime.cli`: the same as `sapwood`."""

from sapwood.runtime.cli import main

main()
