package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"clusterctl/hcl/convert"
	"clusterctl/provision/bundle"
)

// composeTimeout limits loading a Compose project.
const composeTimeout = time.Minute

// readCompose returns the objects of the Compose project in files, and what has no counterpart.
func (v *convertCommand) readCompose(ctx context.Context, files []string) (convert.Converted, error) {
	if len(files) == 0 || slices.Contains(files, "-") {
		return convert.Converted{}, errors.New("-from compose takes the files of a project, such as compose.yaml")
	}
	text, err := v.runCompose(ctx, files)
	if err != nil {
		return convert.Converted{}, err
	}
	return convert.ReadConverted(text)
}

// runCompose runs gitops-controller, and returns its output.
func (v *convertCommand) runCompose(ctx context.Context, files []string) ([]byte, error) {
	program, err := gitopsProgram()
	if err != nil {
		return nil, err
	}
	args := []string{"compose"}
	for _, profile := range v.profiles {
		args = append(args, "--profile="+profile)
	}
	if v.hostPaths {
		args = append(args, "--host-paths")
	}
	limited, cancel := context.WithTimeout(ctx, composeTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, program)
	if cmd.Env = []string{"GOTRACEBACK=none"}; v.env {
		args, cmd.Env = append(args, "--env"), os.Environ()
	}
	cmd.Args, cmd.WaitDelay = append(append(append(cmd.Args, args...), "--"), files...), time.Second
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		text, isOwn := strings.CutPrefix(strings.TrimSpace(problems.String()), bundle.GitOps+": ")
		if !isOwn { // the process was stopped by a limit
			return nil, fmt.Errorf("%s: loading the project needs more than 30 s or 1 GiB of memory (%w)", files[0],
				err)
		}
		return nil, errors.New(text)
	}
	return out, nil
}
