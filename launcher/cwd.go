package launcher

import (
	"errors"
	"strings"
)

// errCwd says that a command asked for a working directory outside the workspace. The stage finds out, in words.
var errCwd = errors.New("working directory is outside the workspace")

// asCwd turns the stage's word on a working directory into errCwd: its reports are text, written before a byte of the
// command ran.
func asCwd(err error) error {
	if strings.HasPrefix(err.Error(), "stage: cwd: ") {
		return errors.Join(errCwd, err)
	}
	return err
}
