package cluster

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// RaceReport is the beginning of a report of the race detector.
const RaceReport = "WARNING: DATA RACE"

// Down deletes the lab. If the bundle's clusterctl was built with the race detector, it first reads the journals of all
// running machines. It returns an error for every machine whose daemons reported a race.
func (c *Cluster) Down(ctx context.Context) error {
	return errors.Join(c.checkRaces(ctx), c.Lab.Down(ctx))
}

func (c *Cluster) checkRaces(ctx context.Context) error {
	program := filepath.Join(c.Bundle, "clusterctl")
	detects, err := DetectsRaces(program)
	if err != nil || !detects {
		return err
	}
	var errs []error
	for _, m := range c.Lab.Machines {
		if !m.IsRunning() {
			continue
		}
		// journalctl exits with 1 if no entry matches.
		text, err := m.Run(ctx, "journalctl --no-pager -o short | grep -A 60 '"+RaceReport+"' || true")
		if err != nil {
			errs = append(errs, fmt.Errorf("read the journal of %s: %w", m.Name, err))
		}
		if strings.Contains(text, RaceReport) {
			errs = append(errs, fmt.Errorf("data race on %s:\n%s", m.Name, text))
		}
	}
	return errors.Join(errs...)
}

// DetectsRaces reports whether a program was built with the race detector.
func DetectsRaces(program string) (bool, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return false, fmt.Errorf("read how %s was built: %w", program, err)
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true", nil
		}
	}
	return false, nil
}
