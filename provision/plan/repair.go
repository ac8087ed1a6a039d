package plan

import (
	"slices"
	"strings"

	"clusterctl/certs"
	"clusterctl/provision/step"
)

// RepairSteps returns the indices of a machine's steps that repair what does not work. They cost nothing that works. So
// they are applied on all machines at once, before anything that works restarts and before the control plane's health
// is judged. They are:
//   - certificates that are no longer accepted: expired, revoked, lost, or of another authority. Servers load
//     certificates for each connection and keep running;
//   - units that are dead, with the files that they start with, unless their program is replaced, which is left to the
//     update;
//   - units that run and whose credentials for the API have expired, because they read them only at start.
//
// The etcd unit is left out while a member has yet to join or leave the store. issued are the certificates that the
// machine has received, by the label of their step. A missing certificate that is not among them belongs to a new part
// of the machine, and is no repair. If issued is empty, as in states of former releases, every missing one is repaired.
func RepairSteps(steps []step.Step, changes []step.Change, issued map[string]certs.Revoked) (which []int) {
	isNew := func(i int) bool {
		_, ok := issued[steps[i].Label()]
		return changes[i].Action == step.Create && len(issued) > 0 && !ok
	}
	ended, laid := map[string]bool{}, map[string]int{} // expired credentials; steps that write files, by path
	dropIns := map[string]int{}
	moving := false
	for i, s := range steps {
		if changes[i].Action == "" {
			continue
		}
		switch s := s.(type) {
		case *step.Certificate:
			if changes[i].IsBroken && !isNew(i) {
				which = append(which, i)
			} else {
				laid[s.Path+".crt"] = i
			}
		case *step.Kubeconfig:
			if changes[i].IsBroken && !isNew(i) {
				which, ended[s.Path] = append(which, i), true
			} else {
				laid[s.Path] = i
			}
		case *step.File:
			laid[s.Path] = i
		case *step.Symlink:
			laid[s.Path] = i
		case *step.Binary:
			laid[s.Link] = i
		case *step.DropIns:
			dropIns[s.Unit] = i
		case *step.RemoveFormerEtcd, *step.EtcdJoin, *step.EtcdLeave:
			moving = true
		}
	}
	for i, s := range steps {
		u, ok := s.(*step.Unit)
		if !ok || changes[i].Action == "" || moving && u.Name == "etcd.service" {
			continue
		}
		dead := changes[i].IsBroken
		if !dead && !slices.ContainsFunc(u.Files, func(f string) bool { return ended[f] }) {
			continue
		}
		files, exchanged := fileSteps(u, changes, laid)
		if i, ok := dropIns[u.Name]; ok {
			files = append(files, i)
		}
		if exchanged || !dead && len(files) > 0 {
			continue
		}
		which = append(append(which, files...), i)
		if dead {
			which = append(which, missingFiles(steps, changes)...)
		}
	}
	slices.Sort(which)
	return slices.Compact(which)
}

// fileSteps returns the steps that change a unit's files, and reports whether the unit's program is replaced.
func fileSteps(u *step.Unit, changes []step.Change, laid map[string]int) (files []int, exchanged bool) {
	for _, f := range u.Files {
		i, ok := laid[f]
		if !ok {
			continue
		}
		program := changes[i].Kind == "link" || changes[i].Kind == "binary"
		exchanged = exchanged || program && changes[i].Action == step.Update
		files = append(files, i)
	}
	return files, exchanged
}

// missingFiles returns the steps that create missing files and directories, because a dead unit may lack any of them.
func missingFiles(steps []step.Step, changes []step.Change) (list []int) {
	for i, s := range steps {
		if changes[i].Action != step.Create {
			continue
		}
		switch s.(type) {
		case *step.File, *step.Directory, *step.Symlink, *step.Binary, *step.Certificate, *step.Kubeconfig:
			list = append(list, i)
		}
	}
	return list
}

// DescribeRepairs describes what is mended first on a machine, or returns "".
func DescribeRepairs(which []int, steps []step.Step, changes []step.Change) string {
	certificates := 0
	var units []string
	for _, i := range which {
		switch s := steps[i].(type) {
		case *step.Certificate, *step.Kubeconfig:
			certificates++
		case *step.Unit:
			units = append(units, strings.TrimSuffix(s.Name, ".service"))
		}
	}
	var parts []string
	if certificates > 0 {
		verb := "are"
		if certificates == 1 {
			verb = "is"
		}
		parts = append(parts, Number(certificates, "certificate")+" that "+verb+" no longer accepted")
	}
	if len(units) > 0 {
		parts = append(parts, strings.Join(units, ", "))
	}
	if len(parts) == 0 {
		return ""
	}
	return "mended first, with all other machines: " + strings.Join(parts, ", ")
}
