package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"clusterctl": main})
}

// The scripts run the real command line. Each file tests one behaviour.
// Proves P01, P02, P03.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", Setup: func(e *testscript.Env) error {
		e.Setenv("HOME", e.WorkDir)
		repository, err := filepath.Abs("../..")
		if err != nil {
			return err
		}
		e.Setenv("REPOSITORY", repository)
		return os.MkdirAll(e.WorkDir+"/.ssh", 0o700)
	}})
}
