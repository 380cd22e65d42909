//go:build !sharness_broken

package launcher

// broken is for a build that no one installs: see broken.go.
func broken(string) bool { return false }
