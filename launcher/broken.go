//go:build sharness_broken

package launcher

import (
	"os"
	"slices"
	"strings"
)

// broken is a defect of ours on demand, for tests: this build leaves out the layers that SHARNESS_BREAK names, without a
// word, and the self-probe with "self-probe". Nothing installs it.
func broken(layer string) bool {
	return slices.Contains(strings.Split(os.Getenv("SHARNESS_BREAK"), ","), layer)
}
