// SPDX-License-Identifier: BSD-3-Clause
// Tables of functions that the loader requests and that are empty. This file includes no header of
// Level Zero, because the types of these functions differ between versions of the loader.

#define EMPTY_TABLE(name)                                                                  \
    extern "C" unsigned name##ProcAddrTable(unsigned /*version*/, const void* /*table*/) { \
        return 0;                                                                          \
    }

// clang-format off
EMPTY_TABLE(zeGetCommandListExp) EMPTY_TABLE(zeGetCommandQueue) EMPTY_TABLE(zeGetDeviceExp)
EMPTY_TABLE(zeGetDriverExp) EMPTY_TABLE(zeGetEventExp) EMPTY_TABLE(zeGetEventPool)
EMPTY_TABLE(zeGetEvent) EMPTY_TABLE(zeGetExecutableGraph) EMPTY_TABLE(zeGetFabricEdgeExp)
EMPTY_TABLE(zeGetFabricVertexExp) EMPTY_TABLE(zeGetFence) EMPTY_TABLE(zeGetGraph)
EMPTY_TABLE(zeGetImageExp) EMPTY_TABLE(zeGetImage) EMPTY_TABLE(zeGetKernelExp)
EMPTY_TABLE(zeGetKernel) EMPTY_TABLE(zeGetMemExp) EMPTY_TABLE(zeGetModuleBuildLog)
EMPTY_TABLE(zeGetModule) EMPTY_TABLE(zeGetPhysicalMem) EMPTY_TABLE(zeGetRTASBuilderExp)
EMPTY_TABLE(zeGetRTASBuilder) EMPTY_TABLE(zeGetRTASParallelOperationExp)
EMPTY_TABLE(zeGetRTASParallelOperation) EMPTY_TABLE(zeGetSampler)
EMPTY_TABLE(zesGetDeviceExp) EMPTY_TABLE(zesGetDevice) EMPTY_TABLE(zesGetDiagnostics)
EMPTY_TABLE(zesGetDriverExp) EMPTY_TABLE(zesGetDriver) EMPTY_TABLE(zesGetEngine)
EMPTY_TABLE(zesGetFabricPort) EMPTY_TABLE(zesGetFan) EMPTY_TABLE(zesGetFirmwareExp)
EMPTY_TABLE(zesGetFirmware) EMPTY_TABLE(zesGetFrequency) EMPTY_TABLE(zesGetGlobal)
EMPTY_TABLE(zesGetLed) EMPTY_TABLE(zesGetMemory) EMPTY_TABLE(zesGetOverclock)
EMPTY_TABLE(zesGetPerformanceFactor) EMPTY_TABLE(zesGetPower) EMPTY_TABLE(zesGetPsu)
EMPTY_TABLE(zesGetRasExp) EMPTY_TABLE(zesGetRas) EMPTY_TABLE(zesGetScheduler)
EMPTY_TABLE(zesGetStandby) EMPTY_TABLE(zesGetTemperature) EMPTY_TABLE(zesGetVFManagementExp)
EMPTY_TABLE(zetGetCommandListExp) EMPTY_TABLE(zetGetCommandList) EMPTY_TABLE(zetGetContext)
EMPTY_TABLE(zetGetDebug) EMPTY_TABLE(zetGetDeviceExp) EMPTY_TABLE(zetGetDevice)
EMPTY_TABLE(zetGetKernel) EMPTY_TABLE(zetGetMetricDecoderExp) EMPTY_TABLE(zetGetMetricExp)
EMPTY_TABLE(zetGetMetricGroupExp) EMPTY_TABLE(zetGetMetricGroup) EMPTY_TABLE(zetGetMetric)
EMPTY_TABLE(zetGetMetricProgrammableExp) EMPTY_TABLE(zetGetMetricQueryPool)
EMPTY_TABLE(zetGetMetricQuery) EMPTY_TABLE(zetGetMetricStreamer) EMPTY_TABLE(zetGetMetricTracerExp)
EMPTY_TABLE(zetGetModule) EMPTY_TABLE(zetGetTracerExp)
    // clang-format on
