package kms

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	kmsapi "k8s.io/kms/apis/v2"
)

// These are upstream's intervals: between checks of the plugin, and how long its key is used for writes after the last
// successful check.
const (
	healthInterval   = time.Minute
	maxRetryInterval = 10 * time.Second // the longest interval after a failure
	writeLifetime    = 3 * time.Minute
)

// writeKey is the key for writes.
type writeKey struct {
	seed    *keySeed
	wrapped wrapped
	until   time.Time // extended while the plugin works
}

func wrappedBy(r *kmsapi.EncryptResponse) wrapped {
	return &storedObject{
		KeyID:                  r.GetKeyId(),
		EncryptedDEKSource:     r.GetCiphertext(),
		Annotations:            r.GetAnnotations(),
		EncryptedDEKSourceType: seedType,
	}
}

// Health returns the result of the last check of the plugin.
func (p *Plugin) Health() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.health == nil {
		return nil
	}
	return p.namedError(p.health)
}

// Due returns when the next check of the plugin is due.
func (p *Plugin) Due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nextCheck
}

// scheduleCheck schedules an earlier check of the plugin, because a call has failed.
func (p *Plugin) scheduleCheck() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next := p.config.Now().Add(time.Second); next.Before(p.nextCheck) {
		p.nextCheck = next
	}
}

// Changes is what a check of the plugin has changed.
type Changes struct {
	KeyChanged bool // there is another key for writes
	SeedOpened bool // a seed could be decrypted that could not be before
}

// Check checks the plugin. If the plugin has another key than the one for writes, it encrypts a new seed with it. If
// anything fails, the former seed stays in use until it expires.
func (p *Plugin) Check(ctx context.Context) (found Changes, err error) {
	p.probing.Lock()
	defer p.probing.Unlock()
	start := p.config.Now()
	found.KeyChanged, err = p.checkOnce(ctx, start)
	lacking := 0
	if err == nil {
		for _, w := range p.seeds.takeFailed() {
			if _, failed := p.unwrap(ctx, w); failed == nil {
				found.SeedOpened = true
			} else {
				lacking++
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.health
	p.health = err
	if err == nil {
		p.failures, p.nextCheck = 0, p.config.Now().Add(healthInterval)
		if lacking > 0 {
			p.nextCheck = p.config.Now().Add(maxRetryInterval)
		}
		if before != nil {
			p.config.Log.Info("a KMS plugin is well", "plugin", p.config.Name, "key", shortID(p.current.wrapped.KeyID))
		}
		return found, nil
	}
	p.nextCheck = p.config.Now().Add(min(time.Second<<min(p.failures, 10), maxRetryInterval))
	if p.failures++; p.failures == 1 {
		p.config.Log.Warn("a KMS plugin is not well; what is known of its keys is used for a while", "plugin",
			p.config.Name, "endpoint", p.config.Endpoint, "err", err)
	}
	return found, p.namedError(err)
}

func (p *Plugin) checkOnce(ctx context.Context, start time.Time) (changed bool, err error) {
	r, err := p.status(ctx)
	if err != nil {
		return false, err
	}
	var errs []error
	if r.Healthz != "ok" {
		errs = append(errs, fmt.Errorf("it says of itself: %q", r.Healthz))
	}
	if err := p.checkVersion(r.Version); err != nil {
		errs = append(errs, err)
	}
	if err := checkKeyID(r.KeyId); err != nil {
		return false, errors.Join(append(errs, err)...)
	}
	// Continue even if the plugin reports that it is unhealthy, because writes depend only on whether its key is the
	// same.
	changed, err = p.useKey(ctx, r.KeyId, start.Add(writeLifetime))
	return changed, errors.Join(append(errs, err)...)
}

// checkVersion returns an error unless the plugin uses a known version of the API, and always the same.
func (p *Plugin) checkVersion(version string) error {
	if version != "v2" && version != "v2beta1" {
		return fmt.Errorf("it speaks version %q of the KMS API, v2 is known here", version)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.version == "" {
		p.version = version
	}
	if p.version != version {
		return fmt.Errorf("it speaks version %q of the KMS API, and spoke %q before", version, p.version)
	}
	return nil
}

// useKey makes writes use the plugin's key id.
func (p *Plugin) useKey(ctx context.Context, id string, until time.Time) (changed bool, err error) {
	p.mu.Lock()
	if p.current != nil && p.current.wrapped.KeyID == id {
		same := *p.current
		same.until = until
		p.current = &same
		p.mu.Unlock()
		return false, nil
	}
	p.mu.Unlock()
	s, err := newSeed()
	if err != nil {
		return false, err
	}
	w, err := p.encrypt(ctx, s.secret)
	if err != nil {
		return false, err
	}
	if err := checkWrapped(w); err != nil {
		return false, fmt.Errorf("what it has encrypted: %w", err)
	}
	if w.KeyID != id {
		return false, fmt.Errorf("it encrypts with key %s, and says that its key is %s", shortID(w.KeyID), shortID(id))
	}
	p.seeds.addOwn(w, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = &writeKey{seed: s, wrapped: w, until: until}
	p.config.Log.Info("a KMS plugin has given a key to write with", "plugin", p.config.Name, "key", shortID(id))
	return true, nil
}

// shortID returns a form of a key's ID for logs, because plugins may put confidential data into the ID.
func shortID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:8])
}
