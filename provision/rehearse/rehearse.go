// Package rehearse plans and applies configurations on simulated machines and a simulated cluster. The engine, its
// steps and the agent protocol are the real ones; the hosts only behave like machines. It serves tests of
// configurations. Only a real cluster shows that pods run and names resolve.
package rehearse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/run"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Stage is a simulated environment in which configurations are applied one after another.
type Stage struct {
	dir     string
	bundle  *bundle.Bundle
	cluster *cluster
	agents  sync.WaitGroup

	mu    sync.Mutex
	hosts map[netip.Addr]*hostfake.Host
}

// New returns a stage with its files in dir. The programs of its bundle are placeholders that never run.
func New(dir string) (*Stage, error) {
	for _, name := range bundle.Programs() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("stands for "+name), 0o755); err != nil {
			return nil, err
		}
	}
	files, err := bundle.Open(filepath.Join(dir, "clusterctl"), filepath.Join(dir, "cache"))
	if err != nil {
		return nil, err
	}
	return &Stage{dir: dir, bundle: files, cluster: &cluster{}, hosts: map[netip.Addr]*hostfake.Host{}}, nil
}

// Run plans a configuration, and carries out the plan if apply is true.
func (s *Stage) Run(ctx context.Context, c *config.Cluster, apply bool) (*plan.Plan, error) {
	defer s.agents.Wait()
	s.cluster.declare(c)
	engine := &run.Engine{
		Config: c, Bundle: s.bundle, Dial: s.dial, Options: decide.Options{IsPlanOnly: !apply},
		Store: state.Store{
			Dir:    filepath.Join(s.dir, "state"),
			Sealer: state.Sealer{KeyFile: filepath.Join(s.dir, "age.key")},
		},
		ConnectCluster: func(*state.State, *config.Cluster) (session.Cluster, error) { return s.cluster, nil },
	}
	prepared, err := engine.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer prepared.Close()
	if !apply {
		return prepared.Plan, prepared.Unreached()
	}
	return prepared.Plan, prepared.Apply(ctx)
}

// dial connects to a machine's agent. The machine is created on first use.
func (s *Stage) dial(ctx context.Context, m config.Machine) (session.Agent, error) {
	if !m.IP.IsValid() {
		return nil, errors.New("it has no address")
	}
	s.mu.Lock()
	h := s.hosts[m.IP]
	if h == nil {
		h = &hostfake.Host{Machine: host.Facts{
			IsRoot: true, CanAdjustOOM: true, OS: "debian 12", CPUs: 2, Memory: 4 << 30,
			Addresses: []string{m.IP.String()}, Identity: fmt.Sprintf("of %s", m.IP),
		}}
		s.hosts[m.IP] = h
	}
	s.mu.Unlock()
	near, far := net.Pipe()
	s.agents.Add(1)
	go func() {
		defer s.agents.Done()
		_ = agent.Serve(ctx, h, far, far)
		_ = far.Close()
	}()
	return agent.NewClient(near), nil
}
