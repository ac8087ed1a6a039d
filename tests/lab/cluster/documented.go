package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"clusterctl/tests/lab/machines"
)

// Kinds of machines, as docs/operations.md names them in its tables of ports and files.
const (
	EveryMachine   = "every machine"
	ControlPlane   = "control plane"
	Nodes          = "nodes"
	WithDNS        = "machines with DNS"
	WithProxy      = "machines with proxy"
	StaticPods     = "static pods"
	VirtualAddress = "virtual address"
)

// CheckDocumented compares the listeners of a machine of some kinds, and the modes and owners of the cluster's files on
// it, with the tables of docs/operations.md. Each difference is an error.
func CheckDocumented(ctx context.Context, m *machines.Machine, kinds ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		return err
	}
	kinds = append(kinds, EveryMachine)
	var list []error
	listens, err := findListeners(ctx, m)
	if err != nil {
		return err
	}
	list = append(list, differences(m.Name+": listener", portTable(string(text), kinds), listens)...)
	files, err := findModes(ctx, m)
	if err != nil {
		return err
	}
	list = append(list, differences(m.Name+": file", fileTable(string(text), kinds), files)...)
	return errors.Join(list...)
}

func differences(what string, documented, found map[string]string) (list []error) {
	for _, key := range slices.Sorted(maps.Keys(found)) {
		switch want, ok := documented[key]; {
		case !ok:
			list = append(list, fmt.Errorf("%s %s (%s) is not documented", what, key, found[key]))
		case want != found[key]:
			list = append(list, fmt.Errorf("%s %s is %s, documented is %s", what, key, found[key], want))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(documented)) {
		if _, ok := found[key]; !ok {
			list = append(list, fmt.Errorf("%s %s (%s) is documented and is not there", what, key, documented[key]))
		}
	}
	return list
}

// tableRows returns the cells of a table below a heading, without the header.
func tableRows(text, heading string, columns int) (list [][]string) {
	_, section, _ := strings.Cut(text, "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != columns || strings.HasPrefix(cells[0], "--") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		list = append(list, cells)
	}
	return list[min(1, len(list)):]
}

// portTable returns the listening processes by port/protocol and place.
func portTable(text string, kinds []string) map[string]string {
	table := map[string]string{}
	for _, row := range tableRows(text, "## Ports", 5) {
		if !slices.Contains(kinds, row[2]) {
			continue
		}
		for port := range strings.SplitSeq(row[0], ", ") {
			for at := range strings.SplitSeq(row[1], ", ") {
				table[port+" at "+at] = row[3]
			}
		}
	}
	return table
}

// fileTable returns the mode and owner by path. A path a{b,c} stands for two paths.
func fileTable(text string, kinds []string) map[string]string {
	table := map[string]string{}
	for _, row := range tableRows(text, "## Files", 3) {
		if !slices.Contains(kinds, row[2]) {
			continue
		}
		before, rest, several := strings.Cut(row[0], "{")
		choices, after, _ := strings.Cut(rest, "}")
		if !several {
			table[row[0]] = row[1] + " root"
			continue
		}
		for choice := range strings.SplitSeq(choices, ",") {
			table[before+choice+after] = row[1] + " root"
		}
	}
	return table
}

var listenerLine = regexp.MustCompile(`(?m)^(\w+) +\S+ +\S+ +\S+ +(\S+):(\d+) .*?(?:users:\(\("([^"]*)".*)?$`)

// findListeners returns the listening processes of a machine.
func findListeners(ctx context.Context, m *machines.Machine) (map[string]string, error) {
	out, err := Output(m.SSH(ctx, "root", "ss -Hltnup"))
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, l := range listenerLine.FindAllStringSubmatch(out, -1) {
		at, port, who := l[2], l[3], l[4]
		switch {
		case at == "*" || at == "0.0.0.0" || at == "[::]":
			at = "all"
		case at == m.Address:
			at = "machine"
		case strings.HasPrefix(at, "127.") || at == "[::1]":
			at = "loopback"
		}
		if who == "containerd" { // the kernel chooses the port
			port = "any"
		}
		if who == "kube-controller" { // the kernel truncates names to 15 characters
			who = "kube-controller-manager"
		}
		found[port+"/"+l[1]+" at "+at] = who
	}
	return found, nil
}

// findModes returns the modes and owners of the cluster's files on a machine, without the files of pods and of etcd's
// data.
func findModes(ctx context.Context, m *machines.Machine) (map[string]string, error) {
	out, err := Output(
		m.SSH(
			ctx,
			"root",
			`for d in /etc/kubernetes /etc/cni /etc/containerd /var/lib/kubelet/config.yaml; do [ ! -e $d ] || find $d -printf '0%m %u %p\n'; done
		for d in /var/lib/clusterctl /var/lib/kubelet /run/clusterctl/network.sock /run/containerd/containerd.sock /run/containerd/containerd.sock.ttrpc; do [ ! -e $d ] || stat -c '0%a %U %n' $d; done
		for d in /var/lib/etcd /var/lib/containerd; do [ -z "$(ls -A $d 2>/dev/null)" ] || stat -c '0%a %U %n' $d; done`,
		),
	)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 {
			found[f[2]] = f[0] + " " + f[1]
		}
	}
	return found, nil
}
