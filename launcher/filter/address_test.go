package filter

import "unsafe"

// addressOf is where memory of mmap lies; it is not the garbage collector's, and never moves.
func addressOf(page []byte) uintptr { return uintptr(unsafe.Pointer(&page[0])) }
