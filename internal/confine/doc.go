// Package confine gives up privilege: capabilities, ids, descriptors, Landlock rights and system calls.
//
// Every function acts on all threads of the process, reads the result back where the kernel lets it, and returns an
// error when anything is not as asked: nothing here is best effort. In a program built with cgo the Go runtime cannot
// reach all threads, so there the functions that need it return ENOTSUP; the stage and the helpers are built without.
//
// The package does not decide what to give up, and it makes no namespace and no mount. Memory that was read before
// stays read, and descriptors that are kept stay as strong as they were opened.
package confine
