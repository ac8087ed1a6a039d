// Package cluster starts a cluster with a given configuration on a lab of machines with the real binaries, for the
// demo, the end-to-end tests and the benchmarks.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"clusterctl/tests/lab/machines"
)

// Cluster is a lab, a configuration for it, and the programs to use with it.
type Cluster struct {
	Lab     *machines.Lab
	Folder  string // the directory of the configuration
	Bundle  string // the directory with clusterctl and kubectl
	Kubectl string // path of the kubectl in use
}

// Options are the options of New.
type Options struct {
	Name     string
	Machines []string          // as in machines.Options
	Files    map[string]string // the configuration: file names to contents
	Disk     int64             // bytes of each machine's disk; zero: large enough for everything
	Log      io.Writer
	// HasPrograms means that the machines have the bundle's programs where apply would send them. Sending takes three
	// quarters of the processor time of an apply to new machines. The suites e2e and demo test it.
	HasPrograms bool
}

// defaultDisk is the size of a disk that does not fill up. The disk is a sparse file. It is needed because nodes react
// to full disks, and the host's disk may be nearly full.
const defaultDisk = 16 << 30

// New starts the machines and writes the configuration, but applies nothing.
func New(ctx context.Context, o Options) (*Cluster, error) {
	bundle, err := Bundle()
	if err != nil {
		return nil, err
	}
	if o.Disk == 0 {
		o.Disk = defaultDisk
	}
	var programs map[string]string
	if o.HasPrograms {
		if programs, err = findPrograms(bundle); err != nil {
			return nil, err
		}
	}
	lab, err := machines.StartMachines(ctx,
		machines.Options{Name: o.Name, Machines: o.Machines, Disk: o.Disk, Files: programs, Log: o.Log})
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Lab:     lab,
		Folder:  filepath.Join(lab.Home(), "cluster"),
		Bundle:  bundle,
		Kubectl: filepath.Join(bundle, "kubectl"),
	}
	for name, content := range o.Files {
		if err := c.Write(name, content); err != nil {
			return nil, errors.Join(err, lab.Down(context.WithoutCancel(ctx)))
		}
	}
	return c, nil
}

// Open returns a cluster that an earlier process created.
func Open(name string) (*Cluster, error) {
	bundle, err := Bundle()
	if err != nil {
		return nil, err
	}
	lab, err := machines.Open(name)
	if err != nil {
		return nil, err
	}
	return &Cluster{
		Lab:     lab,
		Folder:  filepath.Join(lab.Home(), "cluster"),
		Bundle:  bundle,
		Kubectl: filepath.Join(bundle, "kubectl"),
	}, nil
}

// Bundle returns the directory of the binaries: CLUSTERCTL_BUNDLE, or bin/ of the repository that contains the working
// directory.
func Bundle() (string, error) {
	if dir, err := DeclaredBundle(); dir != "" || err != nil {
		return dir, err
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin")
	if _, err := os.Stat(filepath.Join(dir, "clusterctl")); err != nil {
		return "", fmt.Errorf("the bundle is not built: run make build: %w", err)
	}
	return dir, nil
}

// DeclaredBundle returns the folder that CLUSTERCTL_BUNDLE names, or "". It looks at the programs, so that Go runs a
// test again whose cached result is of other programs.
func DeclaredBundle() (string, error) {
	dir := os.Getenv("CLUSTERCTL_BUNDLE")
	if dir == "" {
		return "", nil
	}
	for _, name := range []string{"clusterctl", "etcd"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("the bundle is not built: run make build: %w", err)
		}
	}
	return dir, nil
}

// Root returns the root of the repository that contains the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}

// Write writes a file of the configuration.
func (c *Cluster) Write(name, content string) error {
	path := filepath.Join(c.Folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o600)
}

// Kubeconfig returns the path of the administrator's kubeconfig. Apply writes it.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Lab.Home(), "kubeconfig") }

// Clusterctl returns a command that runs clusterctl in the lab's network and the configuration's directory.
func (c *Cluster) Clusterctl(ctx context.Context, args ...string) *exec.Cmd {
	return c.Command(ctx, filepath.Join(c.Bundle, "clusterctl"), args...)
}

// KubectlCommand returns a command that runs kubectl in the lab's network as the administrator.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	return c.Command(ctx, c.Kubectl, args...)
}

// Command returns a command that runs a program of this host in the lab's network and the configuration's directory as
// the administrator. The bundle's programs take precedence over others of the same name.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := c.Lab.Command(ctx, name, args...)
	cmd.Dir, cmd.Env = c.Folder, c.env()
	return cmd
}

func (c *Cluster) env() []string {
	var out []string
	for _, e := range os.Environ() {
		switch key, _, _ := strings.Cut(e, "="); {
		case key == "HOME", key == "KUBECONFIG", key == "PATH", key == "SSH_AUTH_SOCK", strings.HasPrefix(key, "XDG_"):
		default:
			out = append(out, e)
		}
	}
	path := c.Bundle + string(filepath.ListSeparator) + os.Getenv("PATH")
	return append(out, "HOME="+c.Lab.Home(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+path)
}

// Apply applies the configuration, and writes the kubeconfig.
func (c *Cluster) Apply(ctx context.Context, out io.Writer) error {
	apply := c.Clusterctl(ctx, "apply", "--auto-approve")
	apply.Stdout, apply.Stderr = out, out
	if err := apply.Run(); err != nil {
		return fmt.Errorf("clusterctl apply: %w", err)
	}
	var text bytes.Buffer
	kubeconfig := c.Clusterctl(ctx, "kubeconfig")
	kubeconfig.Stdout, kubeconfig.Stderr = &text, out
	if err := kubeconfig.Run(); err != nil {
		return fmt.Errorf("clusterctl kubeconfig: %w", err)
	}
	return os.WriteFile(c.Kubeconfig(), text.Bytes(), 0o600)
}

// Output runs a command and returns its standard output. An error contains its standard error.
func Output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// firstPause and lastPause are the shortest and the longest pause between attempts of Eventually. The pauses grow,
// because most attempts start a program, and kubectl takes more than a tenth of a second of processor time.
const firstPause, lastPause = 50 * time.Millisecond, time.Second

// Eventually calls try until it returns nil. After limit, it returns the last error of try.
func Eventually(ctx context.Context, limit time.Duration, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for pause := firstPause; ; pause = min(pause*3/2, lastPause) {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
