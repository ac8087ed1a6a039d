package role

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	keep "clusterctl/daemons/config/store"
	hcl "clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

// Snapshots of the store are taken by a unit that a timer starts, on each machine with a member. This works for both
// forms of the control plane, because a member in a static pod is reached the same way.
const (
	snapshotTimer   = "etcd-snapshot.timer"
	snapshotService = "etcd-snapshot.service"

	// SnapshotSettings is the file with the snapshot settings. It contains the object store's credentials.
	SnapshotSettings = Kubernetes + "/etcd-snapshots.json"
	snapshotCA       = Kubernetes + "/etcd-snapshots-ca.crt"
)

// firstSnapshotDelay is the delay of the first periodic snapshot after boot or after the timer starts.
const firstSnapshotDelay = time.Minute

// StoreClient returns the credentials of control-plane machines for the store.
func StoreClient() keep.Client {
	s := newStore()
	return keep.Client{CA: s.CA, Cert: s.Cert, Key: s.Key}
}

// MemberURL is the URL of a machine's own member.
const MemberURL = "https://127.0.0.1:2379"

// SnapshotFiles returns the files that the snapshot unit reads. They are also needed to look for snapshots on a machine
// that has nothing else yet.
func SnapshotFiles(c *hcl.Cluster, member string) (list []*step.File, err error) {
	declared := c.Etcd.Snapshot
	s := keep.Settings{
		Member:    member,
		Endpoint:  MemberURL,
		Client:    StoreClient(),
		Directory: declared.Directory,
		Keep:      declared.Keep,
		MaxAge:    declared.MaxAge,
	}
	if at := declared.S3; at != nil {
		s.S3 = &keep.S3Bucket{
			Endpoint:  at.Endpoint,
			Bucket:    at.Bucket,
			Prefix:    at.Prefix,
			Region:    at.Region,
			PathStyle: at.PathStyle,
			AccessKey: at.AccessKey,
			SecretKey: at.SecretKey,
			Session:   at.Session,
		}
		if at.CA != "" {
			s.S3.CAFile = snapshotCA
			list = append(list, &step.File{Path: snapshotCA, Content: []byte(at.CA)})
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(list, &step.File{Path: SnapshotSettings, Content: append(text, '\n'), Mode: 0o600, Secret: true}), nil
}

// addSnapshots adds the snapshot unit and its timer on a machine with a member.
func addSnapshots(b *builder) {
	declared := b.Cluster.Etcd.Snapshot
	files, err := SnapshotFiles(b.Cluster, b.Machine.Name)
	if err != nil && b.err == nil {
		b.err = err
	}
	for _, f := range files {
		b.add(f)
	}
	if declared.S3 == nil || declared.S3.CA == "" {
		b.add(&step.Absent{Path: snapshotCA})
	}
	b.add(&step.Directory{Path: declared.Directory, Mode: 0o700})
	proxy, proxyFiles := b.proxyOptions(proxyFile, b.Cluster.System.Proxy)
	text := []string{
		fileHeader + ": changes made here are put back by the next apply",
		"[Unit]", "Description=Snapshot of etcd, the cluster's store", "Documentation=https://etcd.io/docs/",
		"Wants=network-online.target", "After=network-online.target etcd.service", "",
		"[Service]", "Type=oneshot", "ExecStart=" + binPath(bundle.Etcd) + " snapshot " + SnapshotSettings,
		"TimeoutStartSec=35min", "Nice=10", "IOSchedulingClass=idle", "UMask=0077", "CapabilityBoundingSet=",
	}
	service := b.addPrivateFile(step.UnitDir+snapshotService, joinLines(slices.Concat(text, confinement, proxy)...))
	text = []string{
		fileHeader + ": changes made here are put back by the next apply",
		"[Unit]", "Description=When snapshots of etcd are taken", "",
		"[Timer]",
	}
	for _, at := range declared.Schedule.Calendar() {
		text = append(text, "OnCalendar="+at)
	}
	if every := declared.Schedule.Every; every > 0 {
		text = append(text, "OnActiveSec="+formatSeconds(min(every, firstSnapshotDelay)), "OnUnitActiveSec="+
			formatSeconds(every))
	} else {
		text = append(text, "Persistent=yes") // a snapshot that was due while the machine was off is taken after boot
	}
	text = append(text, "RandomizedDelaySec="+formatSeconds(declared.Schedule.Jitter), "AccuracySec=1s", "",
		"[Install]", "WantedBy=timers.target")
	timer := b.addPrivateFile(step.UnitDir+snapshotTimer, joinLines(text...))
	b.addUnitStep(&step.Unit{Name: snapshotTimer, Files: append([]string{timer, service}, proxyFiles...)})
}

func formatSeconds(d time.Duration) string { return fmt.Sprintf("%ds", int(d.Seconds())) }

// removeSnapshots removes the snapshot unit and its timer. Existing snapshots stay.
func removeSnapshots(b *builder) {
	for _, name := range []string{snapshotTimer, snapshotService} {
		b.add(&step.RemoveUnit{Name: name, Path: step.UnitDir + name})
	}
}

// StoreProgram returns the program etcd, and a step that checks whether it was sent to a machine.
func StoreProgram(files Files) (bundle.File, *step.CheckSent, error) {
	f, err := files.File(bundle.Etcd)
	return f, &step.CheckSent{Path: host.LibraryDir + "/" + f.Digest + "/" + bundle.Etcd, Size: f.Size}, err
}
