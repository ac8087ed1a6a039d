package policy

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	kjson "sigs.k8s.io/json"

	"clusterctl/daemons/kinds/quantity"
)

// checkedInterfaces create checked objects. The library decodes the results of JSON patches into them.
type checkedInterfaces struct{ admission.ObjectInterfaces }

// GetObjectCreater implements admission.ObjectInterfaces.
func (i checkedInterfaces) GetObjectCreater() runtime.ObjectCreater {
	return checkedCreater{i.ObjectInterfaces.GetObjectCreater()}
}

type checkedCreater struct{ runtime.ObjectCreater }

// New implements runtime.ObjectCreater.
func (c checkedCreater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	obj, err := c.ObjectCreater.New(kind)
	if err != nil {
		return nil, err
	}
	return &checkedObject{obj}, nil
}

// checkedObject is an object that is decoded only if its quantities do not take long to parse.
type checkedObject struct{ runtime.Object }

// UnmarshalJSON implements json.Unmarshaler. Unknown fields are an error.
func (o *checkedObject) UnmarshalJSON(data []byte) error {
	if err := quantity.Check(data, o.Object); err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(data, o.Object)
	if err == nil && len(unknown) > 0 {
		err = runtime.NewStrictDecodingError(unknown)
	}
	return err
}
