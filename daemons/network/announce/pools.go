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
	pools           []config.Pool // as last read
	readProblem     string        // why they cannot be read now; "" if they can
	savedText       string        // content of the file
	loggedSaveError bool          // a failure to write the file was logged
}

// storedPools is the content of the pools' ConfigMap as the file holds it.
type storedPools struct {
	Data        map[string]string `json:"data,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// errNoPools reports that the ConfigMap of pools is missing.
var errNoPools = errors.New("it is missing")

// readPools returns the pools, for their interfaces and routers. While the ConfigMap cannot be read or is missing, the
// last known pools stay in effect, so that announced addresses stay in place. An address without a pool stays until the
// controller has taken it back.
func (a *Announcer) readPools(ctx context.Context) ([]config.Pool, error) {
	list, err := a.configMaps.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	k := &a.knownPools
	cause := errNoPools
	for _, m := range list {
		var read []config.Pool
		if read, cause = config.ReadPools(m.Data, m.Annotations); cause == nil {
			k.pools, k.readProblem = read, ""
			a.savePools(storedPools{m.Data, m.Annotations})
			return read, nil
		}
	}
	if text := cause.Error(); k.readProblem != text {
		level := slog.LevelWarn
		if k.readProblem = text; k.pools == nil && cause == errNoPools {
			level = slog.LevelInfo // normal while a cluster is being created
		}
		a.Log.Log(ctx, level, "the pools of addresses cannot be read; what is announced stays as it is", "configMap",
			config.PoolsName, "reason", cause)
	}
	return k.pools, nil
}

// savePools writes the pools to the file, so that a daemon that starts while the ConfigMap is missing uses the same
// pools.
func (a *Announcer) savePools(what storedPools) {
	if a.PoolsFile == "" {
		return
	}
	// Only one annotation matters; drop the others.
	none, ok := what.Annotations[config.NoPoolsAnnotation]
	if what.Annotations = nil; ok {
		what.Annotations = map[string]string{config.NoPoolsAnnotation: none}
	}
	text, err := json.Marshal(what)
	if err != nil || string(text) == a.knownPools.savedText {
		return
	}
	if err := a.WriteFile(a.PoolsFile, text); err != nil {
		if !a.knownPools.loggedSaveError {
			// log once: the error text contains the name of a new temporary file each time
			a.knownPools.loggedSaveError = true
			a.Log.Warn("the pools of addresses cannot be kept for the next start", "error", err)
		}
		return
	}
	a.knownPools.savedText, a.knownPools.loggedSaveError = string(text), false
}

// loadPools loads the pools from the file, for the time until the API has delivered them.
func (a *Announcer) loadPools() {
	if a.PoolsFile == "" {
		return
	}
	text, err := os.ReadFile(a.PoolsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var what storedPools
	if err == nil {
		err = json.Unmarshal(text, &what)
	}
	var read []config.Pool
	if err == nil {
		read, err = config.ReadPools(what.Data, what.Annotations)
	}
	if err != nil {
		a.Log.Warn("the pools of addresses that were kept cannot be read", "file", a.PoolsFile, "error", err)
		return
	}
	a.knownPools.pools, a.knownPools.savedText = read, string(text)
}
