package announce

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/config"
)

// knownPools are the pools of addresses as this machine knows them.
type knownPools struct {
	read   []config.Pool // as they were read last
	unread string        // why they cannot be read now, empty when they can
	kept   string        // what the file holds
	unkept bool          // that it cannot be written was told
}

// said is what the ConfigMap of pools says, as the file keeps it.
type said struct {
	Data        map[string]string `json:"data,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// errNoPools is that nobody says which pools there are.
var errNoPools = errors.New("it is missing")

// readPools returns the pools for the interfaces and routers that they name. While they cannot be read, or are missing,
// those from before hold: what is announced stays where it is. An address without a pool, whose time is over, stays
// until the controller has taken it back.
func (a *Announcer) readPools(ctx context.Context) ([]config.Pool, error) {
	list, err := a.maps.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	k := &a.known
	why := errNoPools
	for _, m := range list {
		var read []config.Pool
		if read, why = config.ReadPools(m.Data, m.Annotations); why == nil {
			k.read, k.unread = read, ""
			a.keep(said{m.Data, m.Annotations})
			return read, nil
		}
	}
	if text := why.Error(); k.unread != text {
		level := slog.LevelWarn
		if k.unread = text; k.read == nil && why == errNoPools {
			level = slog.LevelInfo // of a cluster that is being made, for one
		}
		a.Log.Log(
			ctx,
			level,
			"the pools of addresses cannot be read; what is announced stays as it is",
			"configMap",
			config.PoolsName,
			"reason",
			why,
		)
	}
	return k.read, nil
}

// keep writes what was read into the file, so that a daemon that starts while the ConfigMap is missing goes on as the
// one before it.
func (a *Announcer) keep(what said) {
	if a.Memory == "" {
		return
	}
	// Of the annotations there may be any, and one counts.
	none, there := what.Annotations[config.NoPoolsAnnotation]
	if what.Annotations = nil; there {
		what.Annotations = map[string]string{config.NoPoolsAnnotation: none}
	}
	text, err := json.Marshal(what)
	if err != nil || string(text) == a.known.kept {
		return
	}
	if err := a.Write(a.Memory, text); err != nil {
		if !a.known.unkept { // the error names another temporary file each time
			a.known.unkept = true
			a.Log.Warn("the pools of addresses cannot be kept for the next start", "error", err)
		}
		return
	}
	a.known.kept, a.known.unkept = string(text), false
}

// recall takes the pools from the file, until the API says which there are.
func (a *Announcer) recall() {
	if a.Memory == "" {
		return
	}
	text, err := os.ReadFile(a.Memory)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var what said
	if err == nil {
		err = json.Unmarshal(text, &what)
	}
	var read []config.Pool
	if err == nil {
		read, err = config.ReadPools(what.Data, what.Annotations)
	}
	if err != nil {
		a.Log.Warn("the pools of addresses that were kept cannot be read", "file", a.Memory, "error", err)
		return
	}
	a.known.read, a.known.kept = read, string(text)
}
