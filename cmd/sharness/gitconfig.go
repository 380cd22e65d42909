package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func newGitConfigCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "git-config [--workspace DIR] -- ARG…",
		Short: "Change a repository's configuration while a session protects it",
		Long: `git-config is git config for a repository that a session protects: commands inside cannot write .git/config, since
it names programs that git runs. You can, outside, with this or with git config itself. git config renames a new
file into place, which takes the protection off in views that are open until the session puts it back; git-config
writes the file in place, and leaves no such moment.`,
		Example: "  sharness git-config -- user.name 'A. Person'\n  sharness git-config --workspace ~/project -- --add remote.origin.fetch '+refs/*:refs/*'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			err := gitConfig(dir, args)
			if exit := new(exitError); errors.As(err, &exit) {
				return exit
			}
			if err != nil {
				return &exitError{126, fmt.Errorf("git-config: %w", err)}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "workspace", ".", "`FOLDER` of the repository")
	_ = cmd.MarkFlagDirname("workspace")
	return cmd
}

func gitConfig(dir string, args []string) error {
	if uid := os.Getenv("SUDO_UID"); uid != "" && os.Geteuid() == 0 {
		return asCaller(uid, dir, args)
	}
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("--workspace %s: %w", dir, errors.Unwrap(err))
	}
	out, err := git(dir, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return err
	}
	path := filepath.Join(strings.TrimSuffix(out, "\n"), "config")
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "sharness-git-config-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	copied := filepath.Join(tmp, "config")
	if err := os.WriteFile(copied, old, 0o600); err != nil {
		return err
	}
	out, err = git("/", append([]string{"config", "--file", copied}, args...)...)
	if err != nil {
		return err
	}
	fmt.Print(out)
	now, err := os.ReadFile(copied)
	if err != nil || bytes.Equal(now, old) {
		return err
	}
	return writeInPlace(path, now)
}

// writeInPlace keeps the inode, which is what a view's mount protects. It is not atomic: a power cut in between leaves a
// short file, and git says so.
func writeInPlace(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, werr := f.Write(data)
	return errors.Join(werr, f.Truncate(int64(len(data))), f.Sync(), f.Close())
}

func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ended := new(exec.ExitError); err != nil && !errors.As(err, &ended) {
		return "", fmt.Errorf("git %s: %w", args[0], err) // it was not started, and has said nothing
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, gitSaid(stderr.String()))
	}
	return string(out), nil
}

// gitSaid is what git said, in one line and without the page of options that follows a wrong one.
func gitSaid(text string) string {
	said, _, wrong := strings.Cut("\n"+text, "\nusage: ")
	line := strings.Join(strings.Fields(said), " ")
	switch {
	case line == "" && wrong:
		return "these arguments make no sense to it; see git config -h"
	case line == "":
		return "it said no more; asked for a value, it means that there is none"
	case wrong:
		return line + "; see git config -h"
	}
	return line
}

// asCaller does it with the ids of the caller behind sudo: root follows no path of the user's tree.
func asCaller(uid, dir string, args []string) error {
	u, err := strconv.ParseUint(uid, 10, 32)
	if err != nil {
		return fmt.Errorf("SUDO_UID is %q, not a number", uid)
	}
	g, err := strconv.ParseUint(os.Getenv("SUDO_GID"), 10, 32)
	if err != nil {
		return fmt.Errorf("SUDO_GID is %q, not a number", os.Getenv("SUDO_GID"))
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append([]string{"git-config", "--workspace", dir, "--"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Root behind sudo is root there too, and would begin again.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SUDO_UID=") })
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u), Gid: uint32(g)}}
	err = cmd.Run()
	if ended := new(exec.ExitError); errors.As(err, &ended) && ended.Exited() {
		return &exitError{code: ended.ExitCode()} // it has said why
	}
	if err != nil {
		return fmt.Errorf("as uid %d: %w", u, err)
	}
	return nil
}
