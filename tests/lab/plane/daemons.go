package plane

import (
	"fmt"
	"path/filepath"

	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// prepareDaemons prepares the processes of scheduler and controllers, which know the addresses of all API servers.
func (p *Plane) prepareDaemons() error {
	p.health = map[*Process]int{}
	connection := func(kubeconfig string) config.Connection {
		return config.Connection{Kubeconfig: p.path(kubeconfig), APIServers: p.Addresses()}
	}
	serving := func(to *config.Serving) error {
		port, err := run.FreePort()
		to.SecurePort, to.ClientCAFile = port, p.path("ca.crt")
		to.TLSCertFile, to.TLSPrivateKeyFile = p.path("daemon.crt"), p.path("daemon.key")
		return err
	}

	s, defaultScheduler := config.DefaultScheduler(), config.DefaultScheduler()
	s.Connection, s.Profiling = connection("scheduler.conf"), p.Profiling
	if err := serving(&s.Serving); err != nil {
		return err
	}
	p.Scheduler = p.daemon("kube-scheduler", config.Args(&s, &defaultScheduler))
	p.health[p.Scheduler] = s.SecurePort

	c, defaultControllers := config.DefaultControllerManager(), config.DefaultControllerManager()
	c.Connection, c.Profiling = connection("controllers.conf"), p.Profiling
	c.ClusterCIDR = []string{"10.128.0.0/9"} // enough for a /24 for each of thousands of nodes
	c.RootCAFile, c.ServiceAccountPrivateKeyFile = p.path("ca.crt"), p.path("sa.key")
	c.ClusterSigningCertFile, c.ClusterSigningKeyFile = p.path("ca.crt"), p.path("ca.key")
	if p.ControllerSettings != nil {
		p.ControllerSettings(&c)
	}
	if err := serving(&c.Serving); err != nil {
		return err
	}
	p.Controllers = p.daemon("kube-controller-manager", config.Args(&c, &defaultControllers))
	p.health[p.Controllers] = c.SecurePort
	return nil
}

func (p *Plane) daemon(name string, args []string) *Process {
	return &Process{
		log:     p.path(name + ".log"),
		command: append([]string{filepath.Join(p.Bin, "clusterctl"), "daemon", name}, args...),
	}
}

// HealthAddress returns the address where the scheduler or the controllers serve health checks and, if enabled,
// profiles.
func (p *Plane) HealthAddress(daemon *Process) string {
	return fmt.Sprintf("127.0.0.1:%d", p.health[daemon])
}
