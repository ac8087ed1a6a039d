package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/hcl/load"
	"clusterctl/provision/agent"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host/ssh"
	"clusterctl/provision/run"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/workload"
)

// runFlags are the flags of commands that connect to machines.
type runFlags struct {
	configFlags
	acceptNewHostKeys bool
	parallelism       int
	lockTimeout       time.Duration
	sshTimeout        time.Duration
	targets           []string
	excludes          []string
	replaces          []string
	renews, renewOn   []string
	losses            []string
	downgrade         string
	refreshOnly       bool
	noSnapshot        bool
	skipUnreachable   bool
	isUnattended      bool // never ask for a passphrase or send programs to machines

	heldLock *state.Lock // the lock under which the store is written, if it is taken
}

func (f *runFlags) add(c *cobra.Command) {
	f.configFlags.add(c)
	f.addReach(c)
	f.addLock(c)
	c.Flags().BoolVar(&f.json, "json", false, "events and results as JSON, one a line")
	f.addSelection(c)
}

// addLock adds the flag of commands that take the lock.
func (f *runFlags) addLock(c *cobra.Command) {
	c.Flags().DurationVar(&f.lockTimeout, "lock-timeout", 0, "how long to wait for another run to end")
}

// addSelection adds the flags that choose machines, workloads and objects.
func (f *runFlags) addSelection(c *cobra.Command) {
	c.Flags().
		StringArrayVar(&f.targets, "target", nil, "only this `address`: machine.node, machine.node[\"a\"], "+
			"workload.web; can be repeated")
	c.Flags().StringArrayVar(&f.excludes, "exclude", nil, "everything but this `address`; can be repeated")
	f.completeFlags(c, declaredAddresses, "target", "exclude")
}

// addReach adds the flags for connecting to machines, and for the location of the state.
func (f *runFlags) addReach(c *cobra.Command) {
	c.Flags().
		BoolVar(&f.acceptNewHostKeys, "accept-new-host-keys", false, "trust machines that are not in known_hosts "+
			"yet, and write their keys there")
	c.Flags().IntVar(&f.parallelism, "parallelism", 32, "how many machines are worked on at a time")
	c.Flags().
		DurationVar(&f.sshTimeout, "ssh-timeout", 0, "how long logging in to a machine may take; 0 is ConnectTimeout "+
			"of ~/.ssh/config, or 15s")
	c.Flags().
		StringVar(&f.stateDir, "state", "", "`folder` of the state; .clusterctl beside the configuration when empty")
}

// addChanges adds the flags of plans that change a cluster, as opposed to destroying it.
func (f *runFlags) addChanges(c *cobra.Command) {
	c.Flags().
		StringArrayVar(&f.replaces, "replace", nil, "replace this `address`: a machine, workload "+
			"or object; can be repeated")
	c.Flags().
		StringArrayVar(&f.losses, "allow-data-loss", nil, "let what is declared at this `address` go although data "+
			"goes with it: a namespace, a custom resource definition, a claim; can be repeated")
	c.Flags().
		StringVar(&f.downgrade, "allow-downgrade", "", "let machines go back to this `release`, which is older than "+
			"theirs: the version or build of this clusterctl")
	c.Flags().
		BoolVar(&f.refreshOnly, "refresh-only", false, "change nothing in the cluster: have the state forget the "+
			"machines and objects that are gone")
	c.Flags().
		BoolVar(&f.skipUnreachable, "skip-unreachable", false, "leave nodes that are not reached out, as if they "+
			"were excluded, and end with status 1 and their reasons when all else is done")
	c.MarkFlagsMutuallyExclusive("replace", "refresh-only")
	c.MarkFlagsMutuallyExclusive("skip-unreachable", "refresh-only")
	f.completeFlags(c, declaredAddresses, "replace", "allow-data-loss")
}

// store returns the store of a configuration's state.
func (f *runFlags) store(c *load.Configuration) (state.Store, error) {
	keyFile, err := state.DefaultKeyFile()
	if err != nil {
		return state.Store{}, err
	}
	dir := f.stateDir
	if dir == "" {
		dir = filepath.Join(c.Dir, state.DirName)
	}
	return state.Store{
		Dir:    dir,
		Sealer: state.Sealer{Passphrase: os.Getenv(state.PassphraseEnv), KeyFile: keyFile},
		Lock:   f.heldLock,
	}, nil
}

// engine returns an engine with everything that a run needs.
func (f *runFlags) engine(c *load.Configuration, notify func(report.Event)) (*run.Engine, error) {
	// client-go also logs errors that it returns, and a run reports them itself.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	store, err := f.store(c)
	if err != nil {
		return nil, err
	}
	files, err := openBundle()
	if err != nil {
		return nil, err
	}
	if notify != nil {
		files.OnCompress = func(file bundle.File) {
			notify(report.Event{Time: time.Now(), Kind: report.Phase, Size: file.Size,
				Message: fmt.Sprintf("compressing %s, %s", file.Name, formatMegabytes(file.Size))})
		}
	}
	return &run.Engine{
		Config: c.Cluster, Store: store, Bundle: files, Report: notify, ConnectCluster: connectLive(store),
		Run:         rand.Text(),
		Operator:    operatorName(),
		Parallelism: f.parallelism,
		Options: decide.Options{
			Targets: f.targets, Excludes: f.excludes, Replaces: f.replaces, Renews: f.renews, RenewOn: f.renewOn,
			AllowedLosses: f.losses, Downgrade: f.downgrade, IsRefreshOnly: f.refreshOnly,
			SkipsSnapshot: f.noSnapshot, SkipsUnreachable: f.skipUnreachable,
		},
		Dial: func(ctx context.Context,
			m config.Machine) (session.Agent, error) {
			return f.dial(ctx, m, files, notify)
		},
	}, nil
}

func openBundle() (*bundle.Bundle, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return openBundleOf(executable)
}

// openBundleOf returns the bundle that belongs to a clusterctl program.
func openBundleOf(program string) (*bundle.Bundle, error) {
	executable, err := filepath.Abs(program)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", program, err)
	}
	if executable, err = filepath.EvalSymlinks(executable); err != nil {
		return nil, fmt.Errorf("find %s: %w", program, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find your cache folder: %w", err)
	}
	return bundle.Open(executable, filepath.Join(cache, "clusterctl"))
}

// unameArchs maps Go's names of architectures to those of uname -m.
var unameArchs = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// dial logs in to a machine and starts the agent.
func (f *runFlags) dial(
	ctx context.Context, m config.Machine, files *bundle.Bundle, notify func(report.Event),
) (session.Agent, error) {
	client, err := ssh.Dial(ctx, m, f.sshOptions())
	if err != nil {
		return nil, err
	}
	program, err := files.File(bundle.Clusterctl)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	stream, err := client.Start(ctx, ssh.Program{
		Digest: program.Digest, Arch: unameArchs[runtime.GOARCH],
		Gzip: func(ctx context.Context) (io.ReadCloser, error) {
			if f.isUnattended {
				return nil, errors.New("it does not have this release")
			}
			content, err := files.Gzip(ctx, program)
			if err != nil || notify == nil {
				return content, err
			}
			size := report.CompressedSize(content)
			notify(report.Event{Time: time.Now(), Kind: report.Send, Machine: m.Address, Size: size,
				Message: bundle.Clusterctl + ", " + formatMegabytes(size) + " compressed"})
			return &report.Reader{ReadCloser: content, Machine: m.Address, Name: bundle.Clusterctl, Size: size,
				Report: notify}, nil
		},
	})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	a := &machineAgent{Client: agent.NewClient(&agentConnection{ReadWriteCloser: stream, client: client})}
	if client.WasProgramSent {
		a.sentBytes = program.Size
	}
	return a, nil
}

// machineAgent is an agent client that records how much was sent to the machine before the agent could start.
type machineAgent struct {
	*agent.Client
	sentBytes int64
}

// SentBytes returns the size in bytes of this program if this run copied it to the machine, or 0.
func (a *machineAgent) SentBytes() int64 { return a.sentBytes }

func formatMegabytes(n int64) string { return fmt.Sprintf("%d MB", (n+999_999)/1_000_000) }

func (f *runFlags) sshOptions() ssh.Options {
	o := ssh.Options{AcceptNewHostKeys: f.acceptNewHostKeys, Timeout: f.sshTimeout,
		Passphrase: passphrases.askPassphrase}
	if f.isUnattended {
		o.Passphrase = nil
	}
	return o
}

// agentConnection is the agent's connection. Closing it also closes the SSH connection.
type agentConnection struct {
	io.ReadWriteCloser
	client *ssh.Client
}

func (s *agentConnection) Close() error {
	err := s.ReadWriteCloser.Close()
	_ = s.client.Close()
	return err
}

// toolCertificateLifetime is the lifetime of clusterctl's own client certificate, which is issued for every run.
const toolCertificateLifetime = 24 * time.Hour

// connectLive returns a function that connects to the API. The client caches the objects that need no dry run in a file
// beside the state.
func connectLive(store state.Store) func(*state.State, *config.Cluster) (session.Cluster, error) {
	return func(s *state.State, c *config.Cluster) (session.Cluster, error) {
		live, err := connectAPI(s, c)
		if err != nil {
			return nil, err
		}
		live.Remember(filepath.Join(store.Dir, "settled.json"))
		return live, nil
	}
}

func connectAPI(s *state.State, c *config.Cluster) (*workload.Live, error) {
	request := certs.SuperAdmin()
	request.Lifetime = toolCertificateLifetime
	pair, err := certs.Issue(s.CA(certs.ClusterCA), request, time.Now())
	if err != nil {
		return nil, err
	}
	return workload.Connect(apiServerAddresses(c), s.Trust(certs.ClusterCA), pair)
}

func apiServerAddresses(c *config.Cluster) (list []string) {
	for _, m := range c.ControlPlane() {
		list = append(list, net.JoinHostPort(m.IP.String(), "6443"))
	}
	return list
}

// lock takes the state's lock for a run.
func (f *runFlags) lock(ctx context.Context, store state.Store) (*state.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, max(f.lockTimeout, time.Second))
	defer cancel()
	return state.Acquire(ctx, store.Dir, operatorName())
}

// operatorName identifies the user and the process to other users who want to change the same cluster.
func operatorName() string {
	host, _ := os.Hostname()
	holder := fmt.Sprintf("%s, process %d", host, os.Getpid())
	if user := os.Getenv("USER"); user != "" {
		holder = user + "@" + holder
	}
	return holder
}

// errNoCluster reports that a command needs a cluster that apply has created.
var errNoCluster = errors.New(
	"there is no cluster yet: apply first. Was the state lost, clusterctl state rebuild creates it again")

// lockedStore returns the store of a configuration's state and takes its lock, which is held until unlock.
func (f *runFlags) lockedStore(ctx context.Context, c *load.Configuration) (state.Store, error) {
	store, err := f.store(c)
	if err != nil {
		return store, err
	}
	if f.heldLock, err = f.lock(ctx, store); err != nil {
		return store, err
	}
	store.Lock = f.heldLock
	return store, nil
}

func (f *runFlags) unlock() { _ = f.heldLock.Release() }

// loadApplied loads the configuration and the state of its cluster.
func (f *runFlags) loadApplied(c *cobra.Command, args []string) (*load.Configuration, *state.State, error) {
	configuration, s, _, err := f.loadAppliedIn(c, args)
	return configuration, s, err
}

// loadAppliedIn also returns the state's directory, which contains the list of issued kubeconfigs.
func (f *runFlags) loadAppliedIn(
	c *cobra.Command,
	args []string,
) (_ *load.Configuration, _ *state.State, dir string, _ error) {
	configuration, err := f.load(c, args)
	if err != nil {
		return nil, nil, "", err
	}
	store, err := f.store(configuration)
	if err != nil {
		return nil, nil, "", err
	}
	s, err := store.Read()
	if err == nil && s == nil {
		err = errNoCluster
	}
	return configuration, s, store.Dir, err
}
