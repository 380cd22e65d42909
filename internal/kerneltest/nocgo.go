//go:build !cgo

package kerneltest

const builtWithCgo = false
