package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

type objects = []*unstructured.Unstructured

// readObjects reads a list of objects that render wrote.
func readObjects(path string) (objects, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var raw []map[string]any
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out objects
	for _, obj := range raw {
		out = append(out, &unstructured.Unstructured{Object: obj})
	}
	return out, nil
}

// fromYAML parses one document of ours.
func fromYAML(text string) objects {
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		panic(err)
	}
	return objects{obj}
}

// webhooksToURL makes the webhook configurations reach a process on this machine instead of a
// Service: same paths, rules and selectors, other address.
func webhooksToURL(objs objects, port int, ca []byte) {
	for _, obj := range objs {
		hooks, found, _ := unstructured.NestedSlice(obj.Object, "webhooks")
		if !found {
			continue
		}
		for _, h := range hooks {
			hook := h.(map[string]any)
			path, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
			hook["clientConfig"] = map[string]any{
				"url":      fmt.Sprintf("https://127.0.0.1:%d%s", port, path),
				"caBundle": b64(ca),
			}
		}
		_ = unstructured.SetNestedSlice(obj.Object, hooks, "webhooks")
	}
}

// only returns the objects whose kind ends with one of kinds; without, all others.
func only(objs objects, kinds ...string) objects    { return chosen(objs, true, kinds) }
func without(objs objects, kinds ...string) objects { return chosen(objs, false, kinds) }

func chosen(objs objects, keep bool, kinds []string) (out objects) {
	for _, obj := range objs {
		found := false
		for _, kind := range kinds {
			found = found || strings.HasSuffix(obj.GetKind(), kind)
		}
		if found == keep {
			out = append(out, obj)
		}
	}
	return out
}

// applier creates or updates objects by server-side apply.
type applier struct {
	dyn    dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(cfg *rest.Config, api *kubernetes.Clientset) (*applier, error) {
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &applier{dyn, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(api.Discovery()))}, nil
}

func (a *applier) resource(obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := obj.GroupVersionKind()
	m, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() != meta.RESTScopeNameNamespace {
		return a.dyn.Resource(m.Resource), nil
	}
	namespace := obj.GetNamespace()
	if namespace == "" {
		namespace = "default"
	}
	return a.dyn.Resource(m.Resource).Namespace(namespace), nil
}

func (a *applier) apply(ctx context.Context, objs objects, dryRun ...string) error {
	for _, obj := range objs {
		res, err := a.resource(obj)
		if err != nil {
			return err
		}
		data, err := obj.MarshalJSON()
		if err != nil {
			return err
		}
		force := true
		_, err = res.Patch(ctx, obj.GetName(), types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: "controlplane", Force: &force, DryRun: dryRun})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

// applyCRDs applies CustomResourceDefinitions and waits until the server serves and lists them.
func (a *applier) applyCRDs(ctx context.Context, crds objects) error {
	if err := a.apply(ctx, crds); err != nil {
		return err
	}
	for _, crd := range crds {
		res, err := a.resource(crd)
		if err != nil {
			return err
		}
		err = eventually(ctx, 2*time.Minute, func() error {
			got, err := res.Get(ctx, crd.GetName(), metav1.GetOptions{})
			if err == nil && !conditionTrue(got, "Established") {
				err = fmt.Errorf("CRD %s is not established", crd.GetName())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	// A kind is listed some time after its CRD is established. The mapper asks once, and keeps the answer: a kind that
	// was missing in it would be unknown for ever.
	for _, crd := range crds {
		kind, err := kindOf(crd)
		if err != nil {
			return err
		}
		err = eventually(ctx, 2*time.Minute, func() error {
			_, err := a.mapper.RESTMapping(kind)
			if err != nil {
				a.mapper.Reset()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func kindOf(crd *unstructured.Unstructured) (schema.GroupKind, error) {
	group, _, err := unstructured.NestedString(crd.Object, "spec", "group")
	if err != nil {
		return schema.GroupKind{}, err
	}
	kind, _, err := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}, err
}
