package gitops

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"clusterctl/daemons/config/gitsource"
)

// maxWave is the largest absolute value of a wave.
const maxWave = 1000

// stage is a set of objects that are applied at the same time.
type stage struct {
	objects []Object
	// isLast marks the last stage of a wave. All objects of the wave must be healthy before the next wave. After other
	// stages, only the stage's namespaces and definitions must be ready.
	isLast bool
	wave   int
}

// kindOrder lists kinds that other objects need. They are applied before all other objects of their wave.
var kindOrder = [][]string{
	{"Namespace", "CustomResourceDefinition"},
	{"PriorityClass", "StorageClass", "IngressClass", "RuntimeClass", "ServiceAccount", "ClusterRole", "Role",
		"LimitRange",
		"ResourceQuota", "ConfigMap", "Secret", "PersistentVolume", "PersistentVolumeClaim"},
	{"ClusterRoleBinding", "RoleBinding", "Service"},
}

// kindRank returns the position of a kind in the order.
func kindRank(kind string) int {
	for i, kinds := range kindOrder {
		if slices.Contains(kinds, kind) {
			return i
		}
	}
	return len(kindOrder)
}

// waveOf returns the wave of an object.
func waveOf(o Object) (int, error) {
	text, ok := o.GetAnnotations()[gitsource.WaveAnnotation]
	if !ok {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -maxWave || n > maxWave {
		return 0, fmt.Errorf("%s: annotation %s: %q is not a whole number between %d and %d", o.position(),
			gitsource.WaveAnnotation, text, -maxWave, maxWave)
	}
	return n, nil
}

// stagesOf returns the stages in which objects are applied: by wave, and within a wave by kind. Within a stage the
// order of the files is kept.
func stagesOf(objects []Object) ([]stage, error) {
	type entry struct {
		wave, rank int
		object     Object
	}
	entries := make([]entry, len(objects))
	for i, o := range objects {
		wave, err := waveOf(o)
		if err != nil {
			return nil, err
		}
		entries[i] = entry{wave, kindRank(o.GetKind()), o}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.wave, b.wave), cmp.Compare(a.rank, b.rank))
	})
	var stages []stage
	for i, e := range entries {
		if i == 0 || e.wave != entries[i-1].wave || e.rank != entries[i-1].rank {
			stages = append(stages, stage{wave: e.wave})
		}
		last := &stages[len(stages)-1]
		last.objects = append(last.objects, e.object)
	}
	for i := range stages {
		stages[i].isLast = i == len(stages)-1 || stages[i+1].wave != stages[i].wave
	}
	return stages, nil
}

// deletionOrder sorts objects so that those that others need are deleted last.
func deletionOrder(ids []ObjectID) []ObjectID {
	sorted := slices.Clone(ids)
	slices.Reverse(sorted)
	slices.SortStableFunc(sorted, func(a, b ObjectID) int { return cmp.Compare(kindRank(b.Kind), kindRank(a.Kind)) })
	return sorted
}

// position returns where an object was declared, and which object it is.
func (o Object) position() string {
	at := o.File
	if o.Line > 0 {
		at += ":" + strconv.Itoa(o.Line)
	}
	if at != "" {
		at += ": "
	}
	return at + o.GetKind() + " " + o.ID().FullName()
}
