package sealed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"clusterctl/daemons/store/sealed/kms"
)

// plugin returns a key that a KMS plugin holds.
func (r *parsedRules) plugin(p *apiserverv1.KMSConfiguration) (*providerKey, error) {
	c := kms.Config{Name: p.Name, Endpoint: p.Endpoint}
	if p.Timeout != nil {
		if c.Timeout = p.Timeout.Duration; c.Timeout <= 0 {
			return nil, fmt.Errorf("%s: the timeout %s is not positive", p.Name, c.Timeout)
		}
	}
	switch version := cmp.Or(p.APIVersion, "v1"); { // the same default as upstream
	case p.Name == "" || strings.Contains(p.Name, ":"):
		return nil, fmt.Errorf("%q is not the name of a plugin: it must not be empty or contain a colon", p.Name)
	case version == "v1":
		return nil, fmt.Errorf("%s: version v1 of the KMS API is not spoken here, and not by upstream any more: write "+
			"apiVersion: v2, for a plugin that speaks that", p.Name)
	case version != "v2":
		return nil, fmt.Errorf("%s: apiVersion %q is not known: write v2", p.Name, version)
	case p.CacheSize != nil:
		return nil, fmt.Errorf("%s: cachesize means nothing in v2: leave it out", p.Name)
	case slices.ContainsFunc(r.plugins, func(o *kms.Plugin) bool { return o.Name() == p.Name }):
		return nil, fmt.Errorf("%s: two plugins have this name", p.Name)
	}
	made, added, err := r.pool.plugin(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	if added {
		r.added = append(r.added, made)
	}
	r.plugins = append(r.plugins, made)
	return &providerKey{prefix: encryptedPrefix + "kms:v2:" + p.Name + ":", plugin: made}, nil
}

// version identifies the keys that the rules write with. It changes when a plugin changes its key.
func (r *parsedRules) version() [sha256.Size]byte {
	if len(r.plugins) == 0 {
		return r.digest
	}
	h := sha256.New()
	h.Write(r.digest[:])
	for _, p := range r.plugins {
		id := sha256.Sum256([]byte(p.KeyID()))
		h.Write(id[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// pluginPool holds the plugins in use. So a reload reuses the plugins of the former configuration, with their decrypted
// seeds.
type pluginPool struct {
	log *slog.Logger

	mu      sync.Mutex
	plugins []*kms.Plugin
}

func (p *pluginPool) plugin(c kms.Config) (_ *kms.Plugin, added bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, existing := range p.plugins {
		if existing.Matches(c) {
			return existing, false, nil
		}
	}
	c.Log = p.log
	made, err := kms.New(c)
	if err != nil {
		return nil, false, err
	}
	p.plugins = append(p.plugins, made)
	return made, true, nil
}

// closeUnused closes those plugins of a list that are not in use.
func (p *pluginPool) closeUnused(use, list []*kms.Plugin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, plugin := range list {
		if !slices.Contains(use, plugin) && slices.Contains(p.plugins, plugin) {
			p.plugins = slices.DeleteFunc(p.plugins, func(o *kms.Plugin) bool { return o == plugin })
			_ = plugin.Close() // pending calls fail, and their values are then decrypted by the current rules
		}
	}
}

// checkPlugins checks the status of plugins concurrently.
func (s *Store) checkPlugins(ctx context.Context, plugins []*kms.Plugin) error {
	errs := make([]error, len(plugins))
	var looking sync.WaitGroup
	for i, p := range plugins {
		looking.Go(func() {
			var found kms.Changes
			if found, errs[i] = p.Check(ctx); found.KeyChanged || found.SeedOpened {
				s.requestRewrite()
			}
			if found.SeedOpened {
				s.watches.endWatches()
			}
		})
	}
	looking.Wait()
	return errors.Join(errs...)
}

// monitorPlugins checks each plugin when it is due, until ctx ends. The plugins log the results.
func (s *Store) monitorPlugins(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		due := slices.DeleteFunc(slices.Clone(s.current().plugins),
			func(p *kms.Plugin) bool { return now.Before(p.Due()) })
		_ = s.checkPlugins(ctx, due)
	}
}

// PluginHealth returns an error if a KMS plugin in use does not work.
func (s *Store) PluginHealth() error {
	var errs []error
	for _, p := range s.current().plugins {
		errs = append(errs, p.Health())
	}
	return errors.Join(errs...)
}

// Close closes the connections to plugins.
func (s *Store) Close() { s.pool.closeUnused(nil, s.current().plugins) }
