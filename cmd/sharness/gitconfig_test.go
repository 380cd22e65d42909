package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestGitConfigKeepsTheInode(t *testing.T) {
	testscript.Run(t, testscript.Params{Files: []string{"testdata/git_config.txtar"}, RequireExplicitExec: true, Setup: func(e *testscript.Env) error {
		e.Setenv("HOME", e.WorkDir)
		return nil
	}})
}
