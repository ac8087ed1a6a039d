package role

import (
	"cmp"
	"strings"
	"time"

	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

// holdTime is how long the daemons of a new release have to be well together before it has held: longer than a daemon
// takes that ends when it first does its work.
const holdTime = 10 * time.Second

// release has the steps of a machine keep what they change of the release that is there, and watch the new one before
// the former goes. What is below PKI is not of a release: a former trust is never put back.
func (b *builder) release(steps []step.Step) []step.Step {
	keep := &step.KeepRelease{To: b.Release}
	sweep := &step.Sweep{Release: b.Release}
	targets := map[string]string{}
	program := func(link, target string) {
		if strings.HasPrefix(target, host.Library+"/") {
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
			keep.Paths = append(keep.Paths, step.Markers+"/"+s.Name)
		}
	}
	hold := &step.HoldRelease{
		Release: b.Release,
		For:     cmp.Or(b.Cluster.Roll.Hold, holdTime),
		Timeout: b.Cluster.Roll.Timeout,
	}
	for _, h := range b.held {
		h.Program = targets[h.Program]
		hold.Units = append(hold.Units, h)
	}
	return append(append([]step.Step{keep}, steps...), hold, sweep)
}

// RollBack puts a machine's former release back, by the steps of the one that does not work.
func RollBack(steps []step.Step) []step.Step {
	for _, s := range steps {
		if hold, ok := s.(*step.HoldRelease); ok {
			return []step.Step{&step.RollBack{Units: hold.Units, Timeout: hold.Timeout}}
		}
	}
	return nil
}
