package kubelet

import (
	"encoding/json"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/kubelet/volume"
)

// serveRemoveVolume removes the directory of a volume that was provisioned on this node, and says so when it is gone. It may be
// asked again and again.
func (k *Kubelet) serveRemoveVolume(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if err := directory.CheckName(name); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch err := k.volumes.RemoveProvisioned(name); {
	case errors.Is(err, volume.ErrInUse):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		k.env.Log.Warn("remove a provisioned volume", "volume", name, "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		k.env.Log.Info("removed a provisioned volume", "volume", name)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Kind: directory.Resource, Name: name},
		})
	}
}
