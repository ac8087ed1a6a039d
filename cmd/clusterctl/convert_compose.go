package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	nodes "sigs.k8s.io/yaml/goyaml.v3"

	"clusterctl/hcl/convert"
	"clusterctl/hcl/data"
	"clusterctl/provision/bundle"
)

// composeTimeout limits loading a Compose project.
const composeTimeout = time.Minute

// readCompose returns the objects of the Compose project in files.
func (v *convertCommand) readCompose(ctx context.Context, files []string) ([]convert.Object, []convert.Problem, error) {
	if len(files) == 0 || slices.Contains(files, "-") {
		return nil, nil, errors.New("-from compose takes the files of a project, such as compose.yaml")
	}
	var roots []*nodes.Node
	for _, file := range files {
		text, err := data.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		root := &nodes.Node{}
		if nodes.Unmarshal(text, root) != nil {
			root = &nodes.Node{} // the error of the loader is reported
		}
		roots = append(roots, root)
	}
	text, err := v.runCompose(ctx, files)
	if err != nil {
		return nil, nil, err
	}
	project, err := convert.ReadCompose(text)
	if err != nil {
		return nil, nil, err
	}
	project.File, project.HostPaths = files[0], v.hostPaths
	project.Locate = func(path ...string) (string, int) {
		for i, root := range slices.Backward(roots) {
			if line := findLine(root, path); line > 0 {
				return files[i], line
			}
		}
		return "", 0
	}
	objects, problems := project.Objects()
	return objects, problems, nil
}

// runCompose runs gitops-controller, and returns its output.
func (v *convertCommand) runCompose(ctx context.Context, files []string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(self), bundle.GitOps)
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%s, which loads Compose projects, is not beside clusterctl: make build puts the "+
			"whole bundle there", bundle.GitOps)
	}
	args := []string{"compose"}
	for _, profile := range v.profiles {
		args = append(args, "--profile="+profile)
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
	if err != nil {
		text := strings.TrimSpace(strings.TrimPrefix(problems.String(), bundle.GitOps+": "))
		if text == "" {
			text = err.Error()
		}
		return nil, fmt.Errorf("load %s: %s", files[0], text)
	}
	return out, nil
}

// findLine returns the line of an attribute below a node, or 0.
func findLine(n *nodes.Node, path []string) int {
	for n.Kind == nodes.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	if n.Kind != nodes.MappingNode || len(path) == 0 {
		return 0
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != path[0] {
			continue
		}
		if len(path) == 1 {
			return n.Content[i].Line
		}
		return findLine(n.Content[i+1], path[1:])
	}
	return 0
}
