package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"clusterctl/tests/lab/cluster"
)

// exampleCommand is a command line to try, which can be copied from the output into a shell.
type exampleCommand struct {
	line  string
	shows string
	want  string // a regular expression for its output
}

// exampleCommands returns the command lines to try, in order. Each depends on the effects of those before it. run is
// the command that calls this program.
func exampleCommands(run string, kubectl bool) []exampleCommand {
	list := []exampleCommand{
		{"exec clusterctl status", "machines, nodes and workloads", `(?s)machine\.node\["b"] +node +True .*web: well`},
		{"get /api/v1/pods", "the pods", `(?s)^NAMESPACE .*\nshop +web-.* 1/1 +Running`},
		{
			"ssh control curl -s 10.99.0.22:30080",
			"a pod answers, through a port of every machine",
			`hello from clusterctl`,
		},
		{"ssh control systemctl list-units 'kube*'", "the control plane; without a command: a shell",
			`kube-apiserver\.service +loaded active running`},
		{"exec sed -i 's/replicas  = 3/replicas  = 5/' web.hcl", "more pods", `^$`},
		{"exec clusterctl plan", "what would change", `replicas`},
		{"exec clusterctl apply -auto-approve", "it changes", `web`},
		{"get /apis/apps/v1/deployments", "there are five", `web +5/5`},
	}
	if kubectl {
		list = append(
			list,
			exampleCommand{"exec kubectl get nodes,pods -A -o wide", "your kubectl, or that of make kubectl",
				`(?s)node/node-a +Ready .*pod/web-\S+ +1/1 +Running`},
			exampleCommand{
				"exec kubectl scale deployment/web -n shop --replicas=4",
				"another way, until the next apply",
				`scaled`,
			},
		)
	}
	list = append(list,
		exampleCommand{"kill b", "a power cut", `^$`},
		exampleCommand{"start b", "the machine boots", `^$`},
		exampleCommand{"exec bash", "a shell in which clusterctl and kubectl reach the cluster", `^$`},
	)
	for i := range list {
		list[i].line = run + " " + list[i].line
	}
	return list
}

// printCommands prints the commands to try.
func printCommands(w io.Writer, c *cluster.Cluster) error {
	fmt.Fprintln(w, "\n== Try:")
	out := tabwriter.NewWriter(w, 0, 4, 3, ' ', 0)
	for _, command := range exampleCommands(programFor(c.Lab.Name), hasKubectl(c)) {
		fmt.Fprintf(out, "  %s\t# %s\n", command.line, command.shows)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if !hasKubectl(c) {
		fmt.Fprintln(w, "There is no kubectl here: make kubectl builds one, and any other does as well.")
	}
	fmt.Fprintf(w, "Then: make demo-down\nThe configuration is in %s.\n", c.Folder)
	return nil
}

// hasKubectl reports whether the bundle or the host has a kubectl.
func hasKubectl(c *cluster.Cluster) bool {
	if _, err := os.Stat(c.Kubectl); err == nil {
		return true
	}
	_, err := exec.LookPath("kubectl")
	return err == nil
}

// programFor returns the command that calls this program for a demo from a shell in the working directory.
func programFor(name string) string {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	if dir, err := os.Getwd(); err == nil {
		if near, err := filepath.Rel(dir, path); err == nil && !strings.HasPrefix(near, "..") {
			path = near
		}
	}
	words := []string{path}
	if os.Getenv("SUDO_USER") != "" {
		words = []string{"sudo", path}
	}
	if name != "demo" {
		words = append(words, "-name", name)
	}
	return strings.Join(words, " ")
}
