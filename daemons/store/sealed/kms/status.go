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

// How often the plugin is asked how it is, and for how long what it gave is written with when it is not well:
// upstream's figures.
const (
	lookEvery = time.Minute
	lookAgain = 10 * time.Second // after a failure, at most
	writeFor  = 3 * time.Minute
)

// writing is what values are written with.
type writing struct {
	seed    *seed
	wrapped wrapped
	until   time.Time // unless the plugin is well
}

func wrappedBy(r *kmsapi.EncryptResponse) wrapped {
	return &storedObject{
		KeyID:                  r.GetKeyId(),
		EncryptedDEKSource:     r.GetCiphertext(),
		Annotations:            r.GetAnnotations(),
		EncryptedDEKSourceType: seedType,
	}
}

// Health is what was found when the plugin was last looked at.
func (p *Plugin) Health() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.health == nil {
		return nil
	}
	return p.fault(p.health)
}

// Due is when the plugin is to be looked at again.
func (p *Plugin) Due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// soon has the plugin looked at before its time: something has failed.
func (p *Plugin) soon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next := p.config.Now().Add(time.Second); next.Before(p.next) {
		p.next = next
	}
}

// Found is what a look at the plugin has changed.
type Found struct {
	Key    bool // there is another key to write with
	Opened bool // what could not be decrypted before can be now
}

// Look asks the plugin how it is. When it has another key than the one that is written with, it is given a new seed to
// encrypt with that. Whatever fails, the former seed stays for its time.
func (p *Plugin) Look(ctx context.Context) (found Found, err error) {
	p.probing.Lock()
	defer p.probing.Unlock()
	began := p.config.Now()
	found.Key, err = p.look(ctx, began)
	lacking := 0
	if err == nil {
		for _, w := range p.seeds.failed() {
			if _, failed := p.unwrap(ctx, w); failed == nil {
				found.Opened = true
			} else {
				lacking++
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.health
	p.health = err
	if err == nil {
		p.failed, p.next = 0, p.config.Now().Add(lookEvery)
		if lacking > 0 {
			p.next = p.config.Now().Add(lookAgain)
		}
		if was != nil {
			p.config.Log.Info("a KMS plugin is well", "plugin", p.config.Name, "key", shown(p.current.wrapped.KeyID))
		}
		return found, nil
	}
	p.next = p.config.Now().Add(min(time.Second<<min(p.failed, 10), lookAgain))
	if p.failed++; p.failed == 1 {
		p.config.Log.Warn(
			"a KMS plugin is not well; what is known of its keys is used for a while",
			"plugin",
			p.config.Name,
			"endpoint",
			p.config.Endpoint,
			"err",
			err,
		)
	}
	return found, p.fault(err)
}

func (p *Plugin) look(ctx context.Context, began time.Time) (changed bool, err error) {
	r, err := p.status(ctx)
	if err != nil {
		return false, err
	}
	var errs []error
	if r.Healthz != "ok" {
		errs = append(errs, fmt.Errorf("it says of itself: %q", r.Healthz))
	}
	if err := p.speaks(r.Version); err != nil {
		errs = append(errs, err)
	}
	if err := validKeyID(r.KeyId); err != nil {
		return false, errors.Join(append(errs, err)...)
	}
	// Also of a plugin that is not well: what matters to who writes is whether its key is still the same.
	changed, err = p.follow(ctx, r.KeyId, began.Add(writeFor))
	return changed, errors.Join(append(errs, err)...)
}

// speaks holds the plugin to one version of the API.
func (p *Plugin) speaks(version string) error {
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

// follow has what is written be of the plugin's key.
func (p *Plugin) follow(ctx context.Context, id string, until time.Time) (changed bool, err error) {
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
	if err := valid(w); err != nil {
		return false, fmt.Errorf("what it has encrypted: %w", err)
	}
	if w.KeyID != id {
		return false, fmt.Errorf("it encrypts with key %s, and says that its key is %s", shown(w.KeyID), shown(id))
	}
	p.seeds.know(w, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = &writing{seed: s, wrapped: w, until: until}
	p.config.Log.Info("a KMS plugin has given a key to write with", "plugin", p.config.Name, "key", shown(id))
	return true, nil
}

// shown is a key's ID as it may be told: plugins may put into it what is nobody's business.
func shown(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:8])
}
