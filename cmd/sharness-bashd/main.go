// Command sharness-bashd is the face of the bash-server. The supervisor starts it with descriptors 3-5 (see
// bashserver.Run); it has no options and no use of its own.
package main

import (
	"fmt"
	"os"

	"github.com/sharness/sharness/bashserver"
)

func main() {
	if err := bashserver.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "sharness-bashd:", err)
		os.Exit(1)
	}
}
