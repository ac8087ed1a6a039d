package config

import "fmt"

// GitOps configures the GitOps controller. Its main is cmd/gitops.
type GitOps struct {
	Connection
	HealthAddress string `flag:"health-address" help:"host:port to serve health and metrics on; none when empty"`
	StateDir      string `flag:"state-dir" help:"directory of the cache of repositories"`
	LeaderElect   bool   `flag:"leader-elect" help:"be active only while holding the lease kube-system/gitops-controller"`
	Workers       int    `flag:"workers" help:"number of sources that are reconciled at the same time"`
}

// DefaultGitOps returns the documented defaults.
func DefaultGitOps() GitOps {
	return GitOps{HealthAddress: "127.0.0.1:10263", StateDir: "/var/cache/gitops-controller", LeaderElect: true,
		Workers: 4}
}

func (g *GitOps) problems() (list []Problem) {
	if g.Workers < 1 || g.Workers > 64 {
		list = append(list, Problem{Name: "workers", Text: fmt.Sprintf("%d is not between 1 and 64", g.Workers)})
	}
	return append(list, addresses(map[string]string{"health_address": g.HealthAddress})...)
}
