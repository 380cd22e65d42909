// Command testrun runs go test and shows what matters of it: one line for each package, everything that a failed test
// wrote, and at the end every skip with its reason.
//
// With CI in the environment a skip for any other reason than a kernel that is too old fails the run: tests that do not
// run prove nothing, and package kerneltest is the one place that may decide so. It adds nothing to the tests and takes
// nothing away; arguments are go test's.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		status = 1
	}
	os.Exit(status)
}

func run(args []string) (int, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start go test: %w", err)
	}
	r := newReport(os.Stdout)
	readErr := r.read(out)
	err = cmd.Wait()
	r.summary()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1), nil
	case err != nil:
		return 1, fmt.Errorf("go test: %w", err)
	case readErr != nil:
		return 1, fmt.Errorf("read what go test says: %w", readErr)
	case os.Getenv("CI") != "" && r.unexplained > 0:
		return 1, fmt.Errorf("%d skipped for another reason than an old kernel", r.unexplained)
	}
	return 0, nil
}
