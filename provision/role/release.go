package role

import (
	"cmp"
	"strings"
	"time"

	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

// holdTime is how long all daemons of a new release must be well before the release is confirmed. It is longer than a
// daemon runs that crashes on its first work.
const holdTime = 10 * time.Second

// wrapRelease adds steps around a machine's steps. They save the files of the present release before they change, and
// watch the new release before the saved files are deleted. Files below PKI do not belong to a release, so a rollback
// never restores former trust.
func (b *builder) wrapRelease(steps []step.Step) []step.Step {
	keep := &step.KeepRelease{To: b.Release}
	sweep := &step.Sweep{Release: b.Release}
	targets := map[string]string{}
	program := func(link, target string) {
		if strings.HasPrefix(target, host.LibraryDir+"/") {
			keep.Programs = append(keep.Programs, step.Symlink{Path: link, Target: target})
		}
		targets[link] = target
		keep.Paths = append(keep.Paths, link)
	}
	for _, s := range steps {
		switch s := s.(type) {
		case *step.Binary:
			program(s.Link, s.Target())
			sweep.Keep = append(sweep.Keep, s.Digest)
		case *step.Image:
			sweep.Keep = append(sweep.Keep, s.Digest)
		case *step.Symlink:
			program(s.Path, s.Target)
		case *step.File:
			if !strings.HasPrefix(s.Path, PKI+"/") {
				keep.Paths = append(keep.Paths, s.Path)
			}
		case *step.Absent:
			if s.NoCopy {
				continue
			}
			if s.LinkInto != "" || strings.HasPrefix(s.Path, Kubernetes+"/") && !strings.HasPrefix(s.Path, PKI+"/") {
				keep.Paths = append(keep.Paths, s.Path)
			}
		case *step.StaticPod:
			keep.Paths = append(keep.Paths, s.Path)
		case *step.Unit:
			keep.Paths = append(keep.Paths, step.MarkerDir+"/"+s.Name)
		}
	}
	hold := &step.HoldRelease{
		Release:  b.Release,
		Duration: cmp.Or(b.Cluster.Roll.Hold, holdTime),
		Timeout:  b.Cluster.Roll.Timeout,
	}
	for _, h := range b.heldDaemons {
		h.Program = targets[h.Program]
		hold.Units = append(hold.Units, h)
	}
	return append(append([]step.Step{keep}, steps...), hold, sweep)
}

// RollBack returns the step that restores a machine's former release. steps are those of the release that does not
// work.
func RollBack(steps []step.Step) []step.Step {
	for _, s := range steps {
		if hold, ok := s.(*step.HoldRelease); ok {
			return []step.Step{&step.RollBack{Units: hold.Units, Timeout: hold.Timeout}}
		}
	}
	return nil
}
