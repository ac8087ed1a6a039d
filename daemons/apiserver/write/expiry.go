package write

import (
	"time"

	"clusterctl/daemons/kinds"
)

// timeToLive returns how long the store keeps an object of a kind after its last write. Zero means that it does not
// expire. Only Events expire.
func (s *Writes) timeToLive(k *kinds.Kind) time.Duration {
	if k.Expires {
		return s.config.EventTTL
	}
	return 0
}
