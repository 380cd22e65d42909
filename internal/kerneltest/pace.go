package kerneltest

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// PaceEnv says how many times slower than a real processor an emulated one is. Whoever starts tests there measures it
// (internal/kernels does, when a machine has booted) and shows it with the results.
const PaceEnv = "KERNELTEST_PACE"

// Within is the time that a test gives the kernel and what runs on it: d as it is promised for a real processor, and on
// an emulated one as many times longer as that is slower.
func Within(t testing.TB, d time.Duration) time.Duration {
	t.Helper()
	text, emulated := os.LookupEnv(PaceEnv)
	if !emulated {
		return d
	}
	times, err := strconv.Atoi(text)
	if err != nil || times < 1 {
		t.Fatalf("%s=%s: want a number of times", PaceEnv, text)
	}
	return time.Duration(times) * d
}
