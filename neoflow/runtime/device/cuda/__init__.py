"""An NVIDIA GPU as a `Device`."""

from neoflow.runtime.device.cuda.device import Cuda, this_gpu
from neoflow.runtime.device.cuda.driver import CudaDriver, Driver, Gpu
from neoflow.runtime.device.cuda.memory import DeviceArray, Moment, Pinned

__all__ = ["Cuda", "CudaDriver", "DeviceArray", "Driver", "Gpu", "Moment", "Pinned", "this_gpu"]
