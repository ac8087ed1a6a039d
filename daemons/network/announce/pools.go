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

// knownPools holds the address pools that this machine knows.
type knownPools struct {
	read   []config.Pool // as last read
	unread string        // why they cannot be read now; "" if they can
	kept   string        // content of the file
	unkept bool          // a failure to write the file was logged
}

// said is the content of the pools' ConfigMap as the file holds it.
type said struct {
	Data        map[string]string `json:"data,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// errNoPools reports that the ConfigMap of pools is missing.
var errNoPools = errors.New("it is missing")

// readPools returns the pools, for their interfaces and routers. While the ConfigMap cannot be read or is missing, the
// last known pools stay in effect, so that announced addresses stay in place. An address without a pool stays until the
// controller has taken it back.
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
			level = slog.LevelInfo // normal while a cluster is being created
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

// keep writes the pools to the file, so that a daemon that starts while the ConfigMap is missing uses the same pools.
func (a *Announcer) keep(what said) {
	if a.Memory == "" {
		return
	}
	// Only one annotation matters; drop the others.
	none, there := what.Annotations[config.NoPoolsAnnotation]
	if what.Annotations = nil; there {
		what.Annotations = map[string]string{config.NoPoolsAnnotation: none}
	}
	text, err := json.Marshal(what)
	if err != nil || string(text) == a.known.kept {
		return
	}
	if err := a.Write(a.Memory, text); err != nil {
		if !a.known.unkept { // log once, because the error contains another temporary file each time
			a.known.unkept = true
			a.Log.Warn("the pools of addresses cannot be kept for the next start", "error", err)
		}
		return
	}
	a.known.kept, a.known.unkept = string(text), false
}

// recall loads the pools from the file, for the time until the API has delivered them.
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
