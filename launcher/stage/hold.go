package stage

import (
	"io"
	"os"
)

// Hold waits until its standard input ends. The launcher starts it in a new user namespace, whose descriptor gives an
// idmapped mount its mapping (mount_setattr(2), MOUNT_ATTR_IDMAP): the namespace must have a process until it is opened.
func Hold() {
	_, _ = io.Copy(io.Discard, os.Stdin)
}
