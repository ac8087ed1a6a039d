package config

import (
	"slices"

	daemons "clusterctl/daemons/config"
	"clusterctl/daemons/config/gitsource"
)

// IsGitSource reports whether an object is a GitSource.
func (o Object) IsGitSource() bool {
	return o.Content["apiVersion"] == gitsource.APIVersion && o.Content["kind"] == gitsource.Kind
}

// HasGitSources reports whether the configuration declares GitSources, in whatever kind of block.
func (c *Cluster) HasGitSources() bool { return slices.ContainsFunc(c.Objects, Object.IsGitSource) }

// NeedsGitOps reports whether the GitOps controller is needed: for declared GitSources, or to delete the objects of
// those that were declared before.
func (c *Cluster) NeedsGitOps() bool { return c.HadGitSources || c.HasGitSources() }

// ReceiverPort returns the port of the control-plane machines at which the GitOps controller receives webhooks over
// TLS, or 0.
func (c *Cluster) ReceiverPort() int {
	cfg := daemons.DefaultGitOps()
	c.GitOps.Over(&cfg)
	return cfg.ReceiverPort
}
